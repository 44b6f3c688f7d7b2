"""The command line: parse, call, write.  Nothing heavy is imported before a command runs."""
