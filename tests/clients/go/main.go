// Go's own client. Its transport sends a POST again by itself when a
// connection that was used before ends without an answer, because the request
// has an Idempotency-Key.
//
// The first argument names the scenario, the second holds its options. A line
// of JSON is printed for each step and one for the result.
package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

type options struct {
	URL    string `json:"url"`
	CA     string `json:"ca"`
	Chunks int    `json:"chunks"`
	Calls  int    `json:"calls"`
	Gate   string `json:"gate"`
}

type heard struct {
	Status   int               `json:"status"`
	Protocol string            `json:"protocol"`
	Outcome  string            `json:"outcome"`
	Replayed string            `json:"replayed"`
	Body     string            `json:"body"`
	Trailers map[string]string `json:"trailers,omitempty"`
	Error    string            `json:"error,omitempty"`
}

func tell(kind string, what any) {
	if err := json.NewEncoder(os.Stdout).Encode(map[string]any{kind: what}); err != nil {
		panic(err)
	}
}

func client(given options) *http.Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.Proxy = nil
	if given.CA != "" {
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM([]byte(given.CA))
		transport.TLSClientConfig = &tls.Config{RootCAs: roots}
	}
	return &http.Client{Transport: transport, Timeout: 30 * time.Second}
}

func listen(answer *http.Response, err error) heard {
	if err != nil {
		return heard{Error: err.Error()}
	}
	defer answer.Body.Close()
	said := heard{
		Status:   answer.StatusCode,
		Protocol: answer.Proto,
		Outcome:  answer.Header.Get("Onceward-Outcome"),
		Replayed: answer.Header.Get("Idempotent-Replayed"),
	}
	body, err := io.ReadAll(answer.Body)
	said.Body = string(body)
	if err != nil {
		said.Error = err.Error()
	}
	for name := range answer.Trailer {
		if said.Trailers == nil {
			said.Trailers = map[string]string{}
		}
		said.Trailers[name] = answer.Trailer.Get(name)
	}
	return said
}

func payment(ctx context.Context, url string, body io.Reader) *http.Request {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/pay", body)
	if err != nil {
		panic(err)
	}
	request.Header.Set("Authorization", "Bearer alice")
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Idempotency-Key", "k-go")
	// Trailers come only to those who say that they read them.
	request.Header.Set("TE", "trailers")
	return request
}

const amount = `{"amount":5}`

// One payment on a connection that was used before.
func pay(given options) any {
	client := client(given)
	listen(client.Get(given.URL + "/warm"))
	tell("step", "warm")
	return listen(client.Do(payment(context.Background(), given.URL, bytes.NewReader([]byte(amount)))))
}

// The same payment twice.
func twice(given options) any {
	client := client(given)
	var all []heard
	for i := 0; i < 2; i++ {
		all = append(all, listen(client.Do(payment(context.Background(), given.URL, strings.NewReader(amount)))))
	}
	return all
}

// Leaves before the answer, and asks again.
func leave(given options) any {
	client := client(given)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	_, err := client.Do(payment(ctx, given.URL, strings.NewReader(amount)))
	if !errors.Is(err, context.DeadlineExceeded) {
		panic(err)
	}
	tell("step", "left")
	return listen(client.Do(payment(context.Background(), given.URL, strings.NewReader(amount))))
}

// A body of which no length is known, with trailers after it.
func upload(given options) any {
	read, write := io.Pipe()
	go func() {
		for i := 0; i < given.Chunks; i++ {
			write.Write(bytes.Repeat([]byte{byte(i)}, 100_000))
		}
		write.Close()
	}()
	request, err := http.NewRequest(http.MethodPut, given.URL+"/files", read)
	if err != nil {
		panic(err)
	}
	request.Trailer = http.Header{"X-Digest": {"abc"}}
	return listen(client(given).Do(request))
}

// Many payments at once, each under a key of its own.
func crowd(given options) any {
	client := client(given)
	all := make([]heard, given.Calls)
	var done sync.WaitGroup
	for i := range all {
		done.Add(1)
		go func(i int) {
			defer done.Done()
			request := payment(context.Background(), given.URL, strings.NewReader(amount))
			request.Header.Set("Idempotency-Key", "k-"+strconv.Itoa(i))
			all[i] = listen(client.Do(request))
		}(i)
	}
	done.Wait()
	return all
}

// Cancels many calls that are under way at once, and makes one more.
func cancel(given options) any {
	client := client(given)
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	for i := 0; i < given.Calls; i++ {
		done.Add(1)
		go func() {
			defer done.Done()
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, given.URL+"/poll", nil)
			if err != nil {
				panic(err)
			}
			if _, err := client.Do(request); !errors.Is(err, context.Canceled) {
				panic(err)
			}
		}()
	}
	// Until the test says so.
	listen(http.Get(given.Gate))
	cancel()
	done.Wait()
	return listen(client.Do(payment(context.Background(), given.URL, strings.NewReader(amount))))
}

// Sends cookies, which HTTP/2 carries one by one.
func cookies(given options) any {
	request := payment(context.Background(), given.URL, strings.NewReader(amount))
	for _, name := range []string{"a", "b", "c"} {
		request.AddCookie(&http.Cookie{Name: name, Value: "1"})
	}
	return listen(client(given).Do(request))
}

func main() {
	var given options
	if err := json.Unmarshal([]byte(os.Args[2]), &given); err != nil {
		panic(err)
	}
	scenarios := map[string]func(options) any{
		"pay": pay, "twice": twice, "leave": leave, "upload": upload, "crowd": crowd, "cancel": cancel, "cookies": cookies,
	}
	tell("result", scenarios[os.Args[1]](given))
}
