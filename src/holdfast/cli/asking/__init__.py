"""Asking an API server, any one that a kubeconfig names: what the commands about a cluster share.

options     --kubeconfig, --context, --namespace; -o
server      objects as they are on the wire; failures in kubectl's words
picture     everything the scheduler would read, fed to one, so that it can be asked
accounts    who has how much of each node
printing    tables, YAML, JSON and names, as kubectl prints them
"""
