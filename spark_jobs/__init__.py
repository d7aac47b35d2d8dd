"""The Spark worker and Spark sessions for a Calve server. This package uses HTTP only: it imports no other
part of Calve.
"""
