"""The actions of a round, one module each, and what they share.

    allocate         finds nodes for pending pods in the queue's order
    backfill         lets pods that end in time use capacity held for starving jobs
    reserve          makes starvation holds; the timers of starving jobs
    preempt          evicts pods of lower priority so that a job becomes ready
    reclaim          evicts pods of over-allocated queues
    queue_victims    victims for a pod that its queue's limits keep out
    hold_reconciler  brings starvation holds in line with their jobs
    convergence      bounds what a round does, and repeated decisions
    round            the protocol of an action

May import `framework` and the parts below it, never a plugin.
"""
