package main

// engineExample is falcon.yaml with every key and, but for names and addresses,
// its default. docs/cluster.md shows the same.
const engineExample = `job: gpt-70b                      # the name shown
state_dir: /var/lib/falcon        # journal, socket, certs; default $FALCON_STATE_DIR, else ~/.local/state/falcon
socket: /var/lib/falcon/falcon.sock
listen: 0.0.0.0:7440              # agents and remote consoles; default 127.0.0.1:7440, "none" = local only
certs: {ca: /var/lib/falcon/certs/ca.crt, cert: /var/lib/falcon/certs/server.crt, key: /var/lib/falcon/certs/server.key}
memory_limit: ""                  # of the engine's memory, such as 2GiB; "" = 80 % of the cgroup's, none = no limit; GOMEMLIMIT wins
revoked: /var/lib/falcon/certs/revoked  # list of revoked certificates; default revoked beside certs.ca
renew: false                      # agents' certificates are signed again in time; needs ca.key beside certs.ca
stream_most: 24h                  # how old a stream of an agent or a console becomes before it is opened again
policy:
  mode: approve                   # observe | approve | auto
  cap: S1                         # the highest rung that acts by itself in auto
  owner: ""                       # who answers for what acts by itself; S4 needs one
  rungs: {S3: {undo_s: 10}}       # {S3: {approval: auto, countdown_s: 30, per_hour: 2}}; auto | person | never, 0 = no limit;
                                  # undo_s: a person's approval can be withdrawn so long; second: true takes two people
  hours: ""                       # in UTC, when rungs may act by themselves, such as 22:00-06:00; "" = always
  allow_drop: false               # S4 may give up a replica and rescale the batch
  variants: []                    # of S4, best first: replace, restart, drop; [] = replace, restart
  recovery:
    approval: auto                # auto | person: whether a fail-stop fault is recovered from without a person
    countdown_s: 0                # before it acts by itself
    fence_alone: false            # where the job stalls, a silent agent is enough to fence its node
    allow_shrink: false           # go on with fewer replicas where no spare is left
    in_place: 2                   # times an hour that a process is made anew on its own node, -1 = never
    per_hour: 10                  # recoveries without a person, -1 = none
policy_file: ""                   # instead of policy: the same keys in a file of their own
restart:
  leave: 2m                       # S4: for the processes to end after their checkpoint
  launch: 10m                     # for all ranks to be at work again
validation:
  mode: manual                    # manual: a test is advised, an approver asks for it | auto: it is carried out
  life: 10s                       # of one hold, at most 60s
  collective_timeout: 0s          # the framework's (600s in PyTorch): a hold lasts at most a quarter of it; 0s = unknown
  gemm_n: 2048                    # side of the matrices; 12 n² bytes must fit in 7/8 of FALCON_TEST_MB
  repeats: 5                      # timed ones of each test, at most 64
  message_bytes: 16777216         # of a link test; two must fit in 7/8 of FALCON_TEST_MB
  per_hour: 6                     # automatic ones
  cool_down: 20                   # iterations between automatic ones
recovery:
  beat: 2s                        # between two signs of life of an agent
  suspect: 2                      # missed beats before a node is suspected
  dead: 3                         # and taken for dead, with a second sign
  leave: 1m                       # for an agent that said goodbye to come back
  leave_stall: 15s                # of the job meanwhile, before its node is judged all the same
  unvouched_stall: 30s            # of the job, where hooks can't say that the others wait for a silent node
  hang: 2m                        # without any iteration, before the job is said to hang
  optimizer_wait: 5s              # for ranks inside the optimizer, before they are suspended
  suspend: 15s                    # for all to park; who did not is taken for frozen
  spare_wait: 10m                 # for a spare to be brought
  agent_wait: 1m                  # for agents to come back, before a whole restart that needs them
  replace: 5m                     # for processes made anew to park
  rejoin: 5m                      # for groups and state
  racks: {}                       # {n1: r1, n2: r1}: what fails together; a shard's source is in another rack where possible
store:
  listen: ""                      # HOST:PORT of the job's rendezvous store (PyTorch's TCPStore); "" = none
  exposed: false                  # true: other machines may reach it; it asks nobody who he is
  budget_mib: 256                 # memory of all that it holds; each connection counts 8 KiB
journal:
  snapshot_mb: 64                 # of records since the newest snapshot, before the next takes their place
  audit_days: 90                  # how long decisions, policies, fences and audit lines stay
  audit_records: 100000           # and how many of them at most
  backup_dir: ""                  # where the running engine writes copies of the journal; "" = nowhere
  backup_every: 1h                # between two copies
  backups: 24                     # copies that stay
ssh:
  listen: ""                      # HOST:PORT of the console over SSH, such as 0.0.0.0:2222; "" = none
  host_key: /var/lib/falcon/ssh_host_key  # made when it is not there; default ssh_host_key in state_dir
  authorized_keys: ""             # lines of falcon-role="approver",falcon-name="maria" ssh-ed25519 AAAA...
  user_ca: ""                     # public keys whose certificates are taken: principal role:ROLE, the key id is the name
  sessions: 32                    # open at once
  idle: 1h                        # a screen without a key is closed; 0s = never
mitigate:
  overheads_ms: {S3: 60000, S4: 600000}  # what a rung is expected to cost until it was measured; S3: default by its preview
detect:
  run_length: 250                 # iterations expected between changes; the hazard is 1/run_length
  threshold: 0.9                  # alarm when P(run length ≤ 5) exceeds it
  verify: 0.1                     # change of the median that makes an alarm an onset
  warm_up: 10                     # iterations that give the first scale
  suspect: 1.1                    # ratio over peers that makes a rank or a group suspicious
  validate_tries: 2               # tests asked for per incident, -1 = none
  peak_iteration_ms: 0            # what an iteration should take, 0 = the job's own best
  throughput: 0.8                 # share of the best, or of the peak, below which the job is looked at
  watch_every: 200                # iterations between two looks at a quiet job's ranks, -1 = never
  watch_over: 1.5                 # self time over the peers' median that is slow for the watch
  watch_steps: 3                  # slow steps running that make a rank failing
`
