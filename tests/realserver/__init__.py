"""A real kube-apiserver, etcd and kube-scheduler, and comparisons of our answers with theirs."""
