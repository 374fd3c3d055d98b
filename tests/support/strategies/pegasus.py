from support.strategies.bart import towers

VALUES = {"pegasus": towers()}
