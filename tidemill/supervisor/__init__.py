"""`tidemill up`: every part as a process of its own, started again when it dies.

It knows commands, exit codes and signs of life; it never imports a stage, nor torch.
"""
