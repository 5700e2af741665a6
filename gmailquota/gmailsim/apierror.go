package gmailsim

import (
	"encoding/json"
	"fmt"
	"net/http"
)

// apiError is an answer of Gmail's other than success.
type apiError struct {
	code    int
	status  string // google.rpc.Code; left out if empty
	domain  string
	reason  string
	message string
}

func (e *apiError) Error() string { return fmt.Sprintf("%d %s: %s", e.code, e.reason, e.message) }

// body writes the error as Google's APIs do.
func (e *apiError) body() []byte {
	type item struct {
		Message      string `json:"message"`
		Domain       string `json:"domain"`
		Reason       string `json:"reason"`
		Location     string `json:"location,omitempty"`
		LocationType string `json:"locationType,omitempty"`
	}
	type detail struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
		Errors  []item `json:"errors"`
		Status  string `json:"status,omitempty"`
	}
	it := item{Message: e.message, Domain: e.domain, Reason: e.reason}
	if e.code == http.StatusUnauthorized {
		it.Message, it.Location, it.LocationType = "Invalid Credentials", "Authorization", "header"
	}
	body, err := json.Marshal(struct {
		Error detail `json:"error"`
	}{detail{Code: e.code, Message: e.message, Errors: []item{it}, Status: e.status}})
	if err != nil {
		panic(err) // strings and a number
	}
	return body
}

func badRequest(message string, args ...any) *apiError {
	return &apiError{400, "INVALID_ARGUMENT", "global", "invalidArgument", fmt.Sprintf(message, args...)}
}

func notFound() *apiError {
	return &apiError{404, "NOT_FOUND", "global", "notFound", "Requested entity was not found."}
}

func unauthorized() *apiError {
	return &apiError{401, "UNAUTHENTICATED", "global", "authError", "Request had invalid authentication credentials. " +
		"Expected OAuth 2 access token, login cookie or other valid authentication credential."}
}

func delegationDenied() *apiError {
	return &apiError{403, "PERMISSION_DENIED", "global", "forbidden", "Delegation denied for the requested user"}
}

// refusal is what Gmail says to a call over a limit. None of them tells when to come back.
func refusal(by string) *apiError {
	quota := "Quota exceeded for quota metric 'Queries' and limit 'Queries per minute%s' of service " +
		"'gmail.googleapis.com' for consumer 'project_number:000000000000'."
	switch by {
	case "user":
		return &apiError{403, "PERMISSION_DENIED", "usageLimits", "rateLimitExceeded", fmt.Sprintf(quota, " per user")}
	case "project":
		return &apiError{429, "RESOURCE_EXHAUSTED", "usageLimits", "rateLimitExceeded", fmt.Sprintf(quota, "")}
	}
	return &apiError{429, "RESOURCE_EXHAUSTED", "usageLimits", "rateLimitExceeded", "Too many concurrent requests for user"}
}
