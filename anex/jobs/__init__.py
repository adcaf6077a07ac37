"""Jobs: from submit to the end, one module a use case; ``store`` holds the SQL, ``transitions`` the legal moves."""
