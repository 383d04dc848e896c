"""The migration controller: moves pods by `PodMigrationJob`.

Pending ─► Running ─► reserving ─► Available ─► pod evicted ─► replacement bound ─► Succeeded
              └─► Failed, Aborted: its reservation is deleted

migration_controller   reconciles every job
migration_job          one job and its status
migration_steps        the steps above
migration_reservation  the reservation a job creates for the replacement
"""

from holdfast.scheduler.controllers.migration.migration_controller import MigrationController

__all__ = ["MigrationController"]
