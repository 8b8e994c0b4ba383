apiVersion: batch/v1
kind: Job
metadata:
  name: a
