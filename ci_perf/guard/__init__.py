"""Keeps secrets on the machine.

encoded          archives that a text holds in base64 or hexadecimal
guard            keeps files that hold a secret out of the artifact folder
own_environment  hides from other processes what this one holds
redact           removes the values of secrets from texts and runs
secrets          which variables hold secrets
spellings        how the value of a secret looks in a file
unpack           the contents of a file, in archives within archives too
"""
