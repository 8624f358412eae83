"""Problems whose classes form a chain: which device, or team of equal devices, has which run of them.

`program` is the dynamic program, `costs` what it adds up, `method` the method of the table.
"""
