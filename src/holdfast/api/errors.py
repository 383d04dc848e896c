"""Every error Holdfast raises on purpose, wherever it is defined.

    HoldfastError             api.errors
    ├── InvalidObject         api.errors                            an object, or a field, is invalid
    ├── UnknownDefinition     api.errors                            no such CustomResourceDefinition
    ├── MalformedText         api.errors                            text of the wrong grammar
    │   ├── QuantityError     api.errors                            `1.5Gi`
    │   ├── DurationError     api.errors                            `1h30m`
    │   ├── TimeError         api.errors                            `2026-01-01T00:00:00Z`
    │   ├── SelectorError     api.errors                            `app=web,tier in (a,b)`
    │   ├── CronError         api.cron                              `30 6 * * MON-FRI`
    │   └── CelSyntaxError    machinery.schema.cel.syntax           an invalid expression
    ├── BadFileError          api.documents                         a file is no YAML or JSON
    ├── KubernetesError       kube.errors                           of a Kubernetes cluster
    │   ├── KubeconfigError   kube.errors                           an invalid kubeconfig
    │   ├── CredentialsError  kube.errors                           no credentials
    │   ├── ApiError          kube.errors                           the server refused a request
    │   ├── Unreachable       kube.errors                           no answer from the server
    │   │   └── NoConnection  kube.errors                           not even a connection
    │   └── LeadershipLost    kube.errors                           leadership lost, nothing sent
    ├── NotProtobuf           kube.protobuf                         an answer that is no protobuf
    ├── ClaimFailed           kube.writer.binder                    a claim will not be bound
    ├── BenchError            bench.workload                        a benchmark cannot be run
    │   └── NoGpusError       bench.packing                         a trace without GPUs
    ├── ClusterRuns           cli.process_file                      a cluster that runs already
    ├── Failure               cli.options                           a command fails, with a status
    ├── CheckFailed           cli.demo.stage                        the demo saw something else
    ├── Skipped               cli.demo.stage                        a chapter of the demo cannot run
    ├── TooManyViewers        web.live_view                         the dashboard has no place left
    ├── CpuWantError          scheduler.managers.numa.node_topology an invalid request for CPUs
    ├── DeviceRequestError    scheduler.managers.devices.requests   an invalid request for devices
    ├── CapacityError         scheduler.managers.claims.capacity    an impossible share of a device
    ├── AllocationProblem     scheduler.managers.claims.search      claims that are at fault
    ├── TooManyResults        scheduler.managers.claims.search      too many devices for a claim
    ├── ClaimConflict         scheduler.cluster.claim_writes        a claim that changed meanwhile
    ├── InvalidScore          scheduler.cluster.plugin_errors       a score out of range
    ├── UnknownField          scheduler.cluster.class_key           a path to no field of a pod
    ├── UndeclaredAnnotation  scheduler.cluster.class_key           an annotation was not declared
    ├── ConfigError           scheduler.framework.config.structs    an invalid configuration
    ├── Unreadable            scheduler.framework.node_columns      an invalid annotation of a node
    ├── PluginError           scheduler.framework.registry          a plugin breaks its contract
    ├── ContractBroken        plugin.testing.queries                a tested plugin breaks it
    │   └── PluginRaised      plugin.testing.queries                a tested plugin raises
    ├── _TooDeepError         local.apiserver.request_bodies
    ├── InvalidCredentials    local.apiserver.credentials           a request without credentials
    ├── ProtobufError         local.apiserver.protobuf              a body that is no protobuf
    ├── StatusError           machinery.status                      a request is refused
    │   └── ContinueExpired   local.apiserver.verbs.get             a list that cannot be continued
    ├── OutOfBudget           local.apiserver.tables.render         a path that costs too much
    ├── NotApplied            local.up                              manifests that were refused
    ├── PatchError            machinery.patch.fields                a patch that cannot be applied
    │   ├── ApplyConflict     machinery.patch.fields                fields others manage
    │   └── NotComparable     machinery.patch.compare               values of other types
    ├── BadManagedFields      machinery.patch.managed_fields        invalid managed fields
    ├── Conflicting           machinery.patch.managed_fields        an apply of fields of others
    ├── BadPattern            machinery.schema.custom.regexp        an invalid pattern
    ├── TooCostly             machinery.schema.custom.regexp        a pattern that costs too much
    ├── RuleTooCostly         machinery.schema.custom.cel           a rule that costs too much
    ├── SelectorCompileError  machinery.schema.device_selectors     no selector of devices
    ├── CelRuntimeError       machinery.schema.cel.values           an expression fails on some values
    ├── Mismatch              machinery.schema.scalars              a value of another type
    ├── ClaimNotCreated       local.resource_claim_controller       a claim was not made for a pod
    ├── UpError               local.up                              `up` cannot start
    ├── InvalidInput          snapshot.manifests                    invalid files of objects
    ├── NotSettled            snapshot.played_cluster               a cluster that does not settle
    ├── RecordingError        recording.segments                    a recording that cannot be read
    ├── NoSuchTarget          sim.forecast.targets                  nothing to forecast
    ├── ChangeError           sim.what_if.changes                   an impossible change
    ├── ShapeError            sim.what_if.node_shapes               an invalid shape of nodes
    ├── UnknownExample        sim.examples                          no such example
    ├── InvariantBroken       sim.simulated_cluster                 Holdfast is wrong
    ├── ChangedMeanwhile      local.store.store                     a draft that is outdated
    └── StoreError            local.store.objects                   of the store
        ├── _AboutObject      local.store.objects
        │   ├── AlreadyExists local.store.objects                   the name is taken
        │   ├── NotFound      local.store.objects                   no such object
        │   └── NotEncodable  local.store.objects                   an object that cannot be stored
        ├── Conflict          local.store.objects                   another revision than expected
        ├── Compacted         local.store.objects                   a revision that is forgotten
        ├── FutureRevision    local.store.objects                   a revision yet to come
        └── StoreFailed       local.store.objects                   the disk failed

Code that knows which object it works on turns a `MalformedText` into an `InvalidObject`, so
that what reaches the user always names the object and the field.
"""

from __future__ import annotations


class HoldfastError(Exception):
    """Root of the tree: catch this to catch everything Holdfast complains about."""


class InvalidObject(HoldfastError):
    """One complaint about one field of one object.

    `object` is the object's name as timelines show it (`Pod/default/p1`), or "" while only a
    part of an object is looked at. `field` is a path such as `spec.owners[1]`, or "" for the whole
    object.
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
