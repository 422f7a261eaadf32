"""Keeps secrets on the machine.

guard            keeps files that hold a secret out of the artifact folder
own_environment  blanks the secrets that other processes can read in this one
redact           a run without the values of secrets
secrets          which variables hold secrets
spellings        how the value of a secret looks in a file
unpack           the contents of a file, in archives within archives too
"""
