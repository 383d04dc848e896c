"""Every round ends: scenarios and random events after which the scheduler must come to rest."""
