from analytic.strategies.bart import towers

VALUES = {"mbart": towers()}
