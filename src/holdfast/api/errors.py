"""Every error Holdfast raises on purpose, wherever it is defined.

    HoldfastError             api.errors
    ├── InvalidObject         api.errors                          an object, or a field, is invalid
    ├── UnknownDefinition     api.errors                          no such CustomResourceDefinition
    ├── MalformedText         api.errors                          text of the wrong grammar
    │   ├── QuantityError     api.errors                          `1.5Gi`
    │   ├── DurationError     api.errors                          `1h30m`
    │   ├── TimeError         api.errors                          `2026-01-01T00:00:00Z`
    │   └── SelectorError     api.errors                          `app=web,tier in (a,b)`
    ├── BadFileError          api.documents                       a file is no YAML or JSON
    ├── KubernetesError       backends.kubernetes.errors          of a Kubernetes cluster
    │   ├── KubeconfigError   backends.kubernetes.errors          an invalid kubeconfig
    │   ├── CredentialsError  backends.kubernetes.errors          no credentials
    │   ├── ApiError          backends.kubernetes.errors          the server refused a request
    │   ├── Unreachable       backends.kubernetes.errors          no answer from the server
    │   │   └── NoConnection  backends.kubernetes.errors          not even a connection
    │   └── Deposed           backends.kubernetes.errors          leadership lost, nothing sent
    ├── ClaimFailed           backends.kubernetes.writing.claims  a claim will not be bound
    ├── BenchError            bench.errors                        a benchmark cannot be run
    │   └── NoGpusError       bench.packing.arrivals              a trace without GPUs
    ├── Failure               cli.failing                         a command fails, with a status
    ├── CpuWantError          core.cpus.wants                     an invalid request for CPUs
    ├── DeviceRequestError    core.devices.requests               an invalid request for devices
    ├── InvalidScore          core.plugin_errors                  a score out of range
    ├── UnknownField          core.pod_fields                     a path that leads to no field of a pod
    ├── UndeclaredAnnotation  core.pod_reading                    a plugin reads what it did not declare
    ├── ConfigError           framework.config.problems           an invalid configuration
    ├── Unreadable            framework.handle                    a node's annotation has no valid value
    ├── PluginError           framework.registry                  a plugin breaks its contract
    ├── ContractBroken        plugin.testing.paths                a tested plugin breaks its contract
    │   └── PluginRaised      plugin.testing.paths                a tested plugin raises an exception
    ├── _TooDeepError         server.api.bodies
    ├── InvalidCredentials    server.api.credentials              a request that is not authenticated
    ├── ProtobufError         server.api.protobuf.decode          a body that is no protobuf
    ├── ApiError              server.api.status                   a request is refused
    │   └── ContinueExpired   server.api.continuing               a list that cannot be continued
    ├── OutOfBudget           server.api.tables.jsonpath          a path that costs too much
    ├── NotApplied            server.applying                     manifests that were refused
    ├── PatchError            server.patch.errors                 a patch that cannot be applied
    │   ├── ApplyConflict     server.patch.errors                 fields others manage
    │   └── NotComparable     server.patch.typed                  values of other types
    ├── BadManagedFields      server.patch.managers               invalid managed fields
    ├── Conflicting           server.patch.ownership              an apply of fields of others
    ├── BadPattern            server.schema.custom.regexp         an invalid pattern
    ├── TooCostly             server.schema.custom.regexp         a pattern that costs too much
    ├── NotEvaluated          server.schema.custom.rules          a rule that cannot be evaluated
    ├── TooCostly             server.schema.custom.rules          a rule that costs too much
    ├── Mismatch              server.schema.leaves                a value of another type
    ├── UpError               server.up                           `up` cannot start
    ├── InvalidInput          sim.errors                          an invalid scenario
    ├── InvariantBroken       sim.errors                          Holdfast is wrong
    ├── ChangedMeanwhile      store.draft                         a draft that is outdated
    └── StoreError            store.errors                        of the store
        ├── _AboutObject      store.errors
        │   ├── AlreadyExists store.errors                        the name is taken
        │   ├── NotFound      store.errors                        no such object
        │   └── NotEncodable  store.errors                        an object that cannot be stored
        ├── Conflict          store.errors                        another revision than expected
        ├── Compacted         store.errors                        a revision that is forgotten
        ├── FutureRevision    store.errors                        a revision yet to come
        └── StoreFailed       store.errors                        the disk failed

Code that knows which object it works on turns a `MalformedText` into an `InvalidObject`, so
that what reaches the user always names the object and the field.
"""

from __future__ import annotations


class HoldfastError(Exception):
    """Root of the tree: catch this to catch everything Holdfast complains about."""


class InvalidObject(HoldfastError):
    """One complaint about one field of one object.

    `object` is the object's name as timelines show it (`Pod/default/p1`), or "" while only a
    part of an object is looked at. `field` is a path such as `spec.owners[1]`, or "" when the
    object as a whole is meant.
    """

    def __init__(self, object: str, field: str, message: str) -> None:
        super().__init__(object, field, message)
        self.object = object
        self.field = field
        self.message = message

    def __str__(self) -> str:
        return ": ".join(part for part in (self.object, self.field, self.message) if part)

    def within(self, object: str = "", prefix: str = "") -> InvalidObject:
        """The same complaint, seen from an outer object or from further up its path."""
        if prefix and self.field and not self.field.startswith("["):
            prefix += "."
        return InvalidObject(object or self.object, prefix + self.field, self.message)


class UnknownDefinition(HoldfastError):
    """There is no CustomResourceDefinition of that name."""


class MalformedText(HoldfastError, ValueError):
    """Text that does not follow its grammar."""


class QuantityError(MalformedText):
    """Not a Kubernetes quantity."""


class DurationError(MalformedText):
    """Not a Go duration."""


class TimeError(MalformedText):
    """Not an RFC 3339 time."""


class SelectorError(MalformedText):
    """Not a label, field or node selector."""
