from support.strategies.bart import towers

VALUES = {"m2m_100": towers(least=4)}  # the sinusoids divide by half the width less one
