"""What a store refuses.

HoldfastError
└── StoreError
    ├── AlreadyExists    created again
    ├── NotFound         updated or deleted, but not there
    ├── Conflict         not the version that was expected
    ├── Compacted        a revision too old to be remembered (410 Gone)
    ├── FutureRevision   a revision that has not been yet
    ├── NotEncodable     an object that JSON cannot hold
    └── StoreFailed      the disk did not take a write, or the file cannot be used
"""

from holdfast.api.errors import HoldfastError
from holdfast.store.objects import Key


class StoreError(HoldfastError):
    pass


class _AboutObject(StoreError):
    _says = ""

    def __init__(self, key: Key) -> None:
        self.key = key
        super().__init__(f"{key}: {self._says}")


class AlreadyExists(_AboutObject):
    _says = "already exists"


class NotFound(_AboutObject):
    _says = "not found"


class Conflict(StoreError):
    def __init__(self, key: Key, expected: str, found: str) -> None:
        self.key, self.expected, self.found = key, expected, found
        super().__init__(f"{key}: has resourceVersion {found}, not {expected}")


class Compacted(StoreError):
    """`oldest` is the oldest revision from which changes are still remembered."""

    def __init__(self, revision: int, oldest: int) -> None:
        self.revision, self.oldest = revision, oldest
        super().__init__(f"too old resource version: {revision} ({oldest})")


class FutureRevision(StoreError):
    def __init__(self, revision: int, current: int) -> None:
        self.revision, self.current = revision, current
        super().__init__(f"resource version {revision} is still to come; it is {current} now")


class NotEncodable(_AboutObject):
    """The write that brought it fails, and nothing else does."""

    _says = "cannot be encoded as JSON"


class StoreFailed(StoreError):
    pass
