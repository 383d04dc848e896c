"""Jobs that move pods, as their objects say, and what the outside would not do for them.

Scheduling reads nothing of them: they neither wake a pod nor change what is known of a class. The
migration controller takes from here what happened since it last looked.
"""

from holdfast.api.migration import PodMigrationJob
from holdfast.core.events import WriteRefused


class Migrations:
    def __init__(self) -> None:
        self.known: dict[str, PodMigrationJob] = {}
        """By uid."""
        self.changed: dict[str, PodMigrationJob] = {}
        """Jobs that came, changed or went, as they were last seen, by uid."""
        self.refused: list[WriteRefused] = []
        """Writes that were refused."""
        self._uid: dict[str, str] = {}

    def put(self, job: PodMigrationJob) -> None:
        meta = job.metadata
        namesake = self._uid.get(meta.name)
        if namesake is not None and namesake != meta.uid:
            self.drop(namesake)
        self._uid[meta.name] = meta.uid
        self.known[meta.uid] = job
        self.changed[meta.uid] = job

    def drop(self, uid: str) -> None:
        job = self.known.pop(uid, None)
        if job is None:
            return
        if self._uid.get(job.metadata.name) == uid:
            del self._uid[job.metadata.name]
        self.changed[uid] = job
