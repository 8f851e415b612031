"""The path of every report: received, decoded, admitted and counted, in one transaction."""
