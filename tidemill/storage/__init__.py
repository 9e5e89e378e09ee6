"""The only SQL: typed tables, the database, and one module of queries for each concern."""
