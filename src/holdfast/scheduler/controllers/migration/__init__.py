"""Moving pods: `PodMigrationJob`.

    Pending ─► Running ─► room reserved ─► Available ─► pod evicted ─► replacement bound ─► Succeeded
                  └─► Failed, Aborted: the reservation goes too

* `controller`: looks after every job
* `move`: one job, and what is said of it
* `steps`: what it does next
* `room`: the reservation a job makes
"""

from holdfast.scheduler.controllers.migration.migration_controller import MigrationController

__all__ = ["MigrationController"]
