"""Random load for hours on a cluster that runs, by hand: does it stay as large as it was?

`python -m load up --minutes 60` starts `holdfast up` with a data folder, `python -m load run` starts
`holdfast run` on the API server of `KUBEBUILDER_ASSETS`. Pods, gangs, reservations, preemptors, nodes
and edits come and go; the number of objects stays within bounds, so memory and file descriptors must
too.
Every minute the process is measured, and what is bound is added up and compared with the nodes.
"""
