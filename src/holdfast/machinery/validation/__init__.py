"""Validation of decoded and defaulted objects: one list of field errors, in the API server's words.

    pods, placement   containers and pod specs; affinity, tolerations, spread
    metadata          metadata, labels and label selectors
    core_kinds        resources, nodes, volumes, claims, disruption budgets, priority classes
    resource_claims   ResourceClaims, their templates and status, DeviceClasses, claims of pods
    resource_slices   ResourceSlices and DeviceTaintRules
    device_fields     names, taints, selectors and parameters that these have in common
    crds              CustomResourceDefinitions
    own_kinds         Reservations, Queues and PodGroups
    pod_groups        PodGroups and Workloads of scheduling.k8s.io
    kinds             `check_values`: the rules of an object's kind; those of a custom kind are in its
                      schema (`schema.custom`)

Rules that need the cluster's other objects, and those of updates, are in `machinery.strategies`. May
import `machinery.schema` and `api`.
"""
