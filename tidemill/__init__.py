"""Tidemill: online learning from production feedback.

Serving answers and logs what it did; the feedback API logs what users thought of it. Ingest joins
the two into experiences, the learner turns experiences into candidate policy versions, and the
gate promotes, holds, rejects or rolls back. This package holds what more than one of them needs.
"""

__version__ = "0.1.0"
