package consumertest

import "testing"

func randomSuite(t *testing.T, open func(t *testing.T) Fixture) {}
