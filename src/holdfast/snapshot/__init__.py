"""A consistent copy of a cluster's objects, fed to a scheduler that is only queried.

cluster_snapshot  the objects and the scheduler; amounts of resources per node
cluster_changes   changes of objects, tried on a snapshot and undone
reader            reads the objects that the scheduler watches from an API server
"""
