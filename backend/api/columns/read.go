package columns

// Column is one of a table's columns, for readers that go through many ranks
// without their views.
type Column int

// The columns that can be read as they lie. Units a whole: see Per.
const (
	Health       Column = health
	Level        Column = level
	Ms           Column = ms
	WaitMs       Column = waitMs
	SelfRatio    Column = selfRatio
	SmClockMhz   Column = smClockMhz
	TemperatureC Column = temperatureC
	CnpPerS      Column = cnpPerS

	WaitStep        Column = waitStep
	TemperatureStep Column = temperatureStep
	ClockStep       Column = clockStep
	CnpStep         Column = cnpStep
)

// Per is how many of a column's units make 1: a view holds units / Per.
func (c Column) Per() float64 { return per[c] }

// Units is a column by rank; nil stands for all 0. Nobody may modify it.
func (t *Table) Units(c Column) []int32 { return t.values[c] }

// Devices are the devices by rank. Nobody may modify them.
func (t *Table) Devices() []string { return t.devices }

// Shares says without a look at the values that a column is as in other. It may
// fail to see that columns are equal, and never takes different ones for equal;
// of tables that follow each other it sees all (From, Decode).
func (t *Table) Shares(other *Table, c Column) bool {
	return t.world == other.world && same(t.values[c], other.values[c])
}

// SharesDevices is Shares for the devices.
func (t *Table) SharesDevices(other *Table) bool { return same(t.devices, other.devices) }
