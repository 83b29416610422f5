"""The replicate unit: lanes that apply the relay log's rows at the target, each row once (design, Lanes).

unit.py drives lanes from the worker; lane.py is the body of one, in a Spark task: it decodes, gathers a batch and lets
apply.py commit it with the lane's checkpoint. dealing.py says which keys are whose, meeting.py where lanes stand still.
"""
