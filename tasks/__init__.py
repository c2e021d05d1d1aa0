"""What is special to a task: data, head, answers, metrics. No devices here."""
