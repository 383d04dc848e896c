"""Carries the scheduler's decisions out on an API server.

writer              gives each decision to the module below that writes it; sends Events
write_queue         lanes: binds before status before Events; writes of one object in order
binder              a pod's volumes, then its Binding; the outcome when a response was lost
pod_writes          the PodScheduled condition and the nominated node; evictions
reservation_writes  creates, updates and deletes Reservations and their status
job_writes          status of PodGroups and Queues
"""
