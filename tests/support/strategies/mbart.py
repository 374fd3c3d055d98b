from support.strategies.bart import towers

VALUES = {"mbart": towers()}
