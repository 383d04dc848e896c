"""Changes that may help, by what is in the way. Whether they do is not tried here.

changed_claims     ResourceClaims with other requests, and pods whose claims are made again
claim_templates    claims that a workload's template names
claim_volumes      volumes for claims that are not bound
details            names and figures behind reasons
gang_changes       changes of a gang's PodGroup and its topology
gpu_names          GPUs by the resources that nodes have
host_ports         host ports that others have
kept_pods          pods that their workload does not replace when its template changes
label_repairs      other labels for nodes, and for what a pod requires of them
mistaken_units     requests in a mistaken unit
node_repairs       changes of configuration, by the plugin that rejects a node
owner_corrections  owners of a reservation that miss a pod
pod_affinity       affinity and anti-affinity to other pods
pod_sizes          other requests and limits for the containers of a pod
repair             a change that may help, and how the pods and their workload are edited
smaller_workloads  workloads that would create ended pods again
taints             taints of nodes, and tolerations of them
topology_spread    topology spread constraints: which nodes count, and other policies
"""
