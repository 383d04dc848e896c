"""`holdfast bench --mode kube`: schedulers on a real API server, one after the other.

command      what is done
objects      what a plan needs, as an API server takes it
cluster      creating and deleting it, many at a time, and seeing pods get their nodes
schedulers   Holdfast and kube-scheduler as processes: their processor time, their memory
measure      one workload with one scheduler
report       the table
"""
