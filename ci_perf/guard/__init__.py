"""Keeps secrets on the machine.

guard            keeps what holds a secret out of it
own_environment  blanks the secrets that this process shows to others
redact           a run without the values of secrets
secrets          what must not leave the machine
spellings        how it looks in a file
unpack           what a file holds at every depth, in archives within archives too
"""
