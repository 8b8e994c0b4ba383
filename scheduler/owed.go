package scheduler

// claims works out what each queue with a quota would run of its own.
func (a *agenda) claims() {}
