"""The plugin runtime: the contract, profiles, the queue, the scheduling cycle.

    interface                  the plugin contract, and its manual
    handle, node_columns       what a plugin may read of the cluster; values per node, host ports
    read_only_records          pods and classes as plugins from outside see them
    checked_answers            answers of plugins from outside, checked
    registry                   plugins by name, in-tree and from entry points
    config                     KubeSchedulerConfiguration
    profile                    a scheduler name with its plugins
    scheduling_queue           active, back-off and unschedulable pods
    queueing_hints             unschedulable pods that a change may help
    scheduling_cycle           one pod from the queue to its node: search, assume, reserve; several pods
                               in one transaction (`Statement`)
    feasibility                feasible nodes and scores of each pod class, kept up to date; node search
    binding_cycle              an assumed pod to its bind: Permit, waiting pods, PreBind, Bind
    bind_retries               pods of jobs whose binds failed: they keep their place for a while
    failure_handler            an unschedulable pod: verdict, condition, event, queue
    preemption                 PostFilter, applying what it proposes, nominations
    diagnosis                  why no node is feasible, in kube-scheduler's words
    reservation_diagnosis      why no reservation serves a pod, in Koordinator's words
    gangs                      jobs of several pods, from the queue to their nodes
    gang_admission             whether a job may be scheduled, before its members are tried on nodes
    gang_attempts              placing the members of a job in a statement
    gang_permit, gang_failures the binding cycle and the failure handler for all pods of a job
    nominated_pods             nominated pods count as if they were on their node
    dry_run                    whether a pod fits now, or would fit without its victims
    hold_planner               nodes for the tasks of a starving job
    dynamic_provisioning       pods that bring a reservation template
    guarded                    in-tree formulas whose errors are caught

May import `state`, `jobs`, `managers`, `reservations`, `cluster`, `machinery` and `api`.
"""
