"""From experiences to candidate policy versions: objectives, batches, steps, publishing."""
