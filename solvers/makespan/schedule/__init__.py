"""What a schedule is: tasks with their delays in, sequences and start times out."""
