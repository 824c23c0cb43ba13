# The targets of a Makefile with what they do, in the groups that its lines "# group: NAME" begin; the first group is for those who use it.
/^# group: / { print (seen++ ? "\n" : "") substr($0, 10) ":" }
/^[a-z0-9_-]+:.*## / { split($0, part, ":.*## "); printf "  make %-18s %s\n", part[1], part[2] }
