"""The probe reader: a module that runs → sites, with torch.

A run is recorded on a tape (`record`), the anatomy is read off the tape (`sites`), and parts of the tape are run
again with one input position changed (`replay`, `influence`), so that for every value it is known, bit for bit,
which positions it depends on.
"""
