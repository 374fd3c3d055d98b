from analytic.strategies.bart import towers

VALUES = {"pegasus": towers()}
