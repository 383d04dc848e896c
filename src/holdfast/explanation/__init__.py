"""Why an object has no node, or why it got the one it has: asks the scheduler of a
snapshot.

    explainer        finds and explains an object of a snapshot
    explained_kinds  the kinds that can be explained, and their names
    subjects         the kinds one by one: pods, pod groups, workloads, nodes, queues, reservations
    advice           changes that were tried and help
    repairs          changes that may help, by what is in the way
    facts            what is in the way, and who has the capacity
    verdicts         what the scheduler says: feasible nodes, scores, whether a pod would start
    phrases          amounts, pods and times in sentences
    report           the explanation as data

A package imports only from those below it in this list.
"""
