"""The scheduler: events in, decisions out.

Pure: no I/O, no clock, no asyncio, no logging, no randomness; the same events give the same decisions.

    cluster       parts of the state: node table, pod classes, ledger, nominator, domain counts, epoch
    managers      particular resources of a node: CPUs and NUMA nodes, devices, volumes
    reservations  the reservation cache: owners, matching, waiting, preemption and starvation holds
    jobs          pod groups, queues and shares, run-time estimates
    state         `Cluster`: the whole state, composed of these parts and updated by events
    framework     the plugin runtime: profiles, queue, scheduling cycle, feasibility, dry run, diagnosis
    plugins       one module per plugin, and what several of them share
    actions       the actions of a round
    controllers   lifecycles of reservations, provisioning, migrations; status of groups and queues
    scheduler     `Scheduler`, which is fed events and asked for rounds
    assembly      a scheduler with the controllers of its configuration

A pod's way: `Scheduler.feed` → `Cluster.feed` → `PodHandlers` → `Scheduler.pod_pending` → the
`SchedulingQueue`; in a round, the action `Allocate` → `SchedulingCycle.schedule` → `NodeSearch` in the
class's column (`feasibility`) → `SchedulingCycle.assume_and_bind` (assume, reserve) →
`BindingCycle.bind` (permit, bind) → `ConvergenceGuard.admit` → decisions. `docs/glossary.md` explains
the words; `docs/architecture.md` follows a pod file by file.

Each of these imports only from those above it in the list; the three from `plugins` to `controllers`
not from each other either. May import `api` and `machinery`.
"""
