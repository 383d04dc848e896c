"""A consistent copy of a cluster's objects, from an API server or from files; and a scheduler that was
fed them and is only queried.

    manifests         files to documents: YAML or JSON, plain or gzip-compressed, Lists expanded
    snapshot_header   the first object of a snapshot file: when it was taken, what it lacks
    stripping         removes from objects what scheduling does not read
    anonymizing       renames objects so that scheduling decides as before
    snapshot_file     writes snapshot files
    admission         completes objects written by hand as the API server would
    timestamps        the times of past events that objects state
    cluster_objects   ClusterObjects: the raw objects of a cluster at one time; SnapshotLister, which
                      answers queries from them as an API server would
    reader            reads a cluster: the raw objects, or a scheduler that was fed them
    cluster_snapshot  ClusterSnapshot: the objects and the scheduler; amounts of resources per node
    cluster_changes   changes of objects, tried on a snapshot and undone
    dump_workloads    the workload controllers, for objects that may lack what these need
    played_cluster    PlayedCluster: the scheduler and the components of a local cluster, on objects at
                      one moment

A snapshot file is a `v1` List in JSON, gzip-compressed or plain, whose first item is its header,
`apiVersion: sim.holdfast.io/v1alpha1, kind: Snapshot`. The other items are objects as the API server
has them, less what is not needed. `holdfast simulate` takes it. What takes a snapshot file also takes
whatever `kubectl get -o yaml` prints.

A command gets the objects in one of these ways (`cli.options` has the options: `Snapshot` for
`--snapshot FILE`, and those of the cluster; a `Where` has their values):

    cli.client.cluster_objects(where)       ClusterObjects of the files or the cluster; to simulate
                                            them: read_scenario(objects.documents)
    cli.client.ask_any(where, work)         calls work with an ObjectLister of the files or the cluster:
                                            listed, get, some, events, now
    cli.snapshot.warned_snapshot(reader)    in such work: the ClusterSnapshot, to query a scheduler
    cluster_objects.read_files(paths)       without a command line; raises InvalidInput
    reader.read_cluster(server)             the same from an API server
    snapshot_file.write_snapshot(path, …)   writes a file
"""
