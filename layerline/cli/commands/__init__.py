"""The surface of each command: its help, arguments and options. A file is loaded when its command is named."""
