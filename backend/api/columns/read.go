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

// Units is a column by rank; nil means all 0. It must not be modified.
func (t *Table) Units(c Column) []int32 { return t.values[c] }

// Devices are the devices by rank. They must not be modified.
func (t *Table) Devices() []string { return t.devices }
