package ssh_test

import "encoding/base64"

func base64Of(b []byte) string { return base64.StdEncoding.EncodeToString(b) }

// rsaLine is a key of 3072 bits that nobody has the private half of any more.
const rsaLine = "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABgQDCJ2MK0R8AtU4ssNKqBpVRIuswOrIuoRQ4aVB12+/fpQOo4v/xN37IYf9RLQYNwVggtgLNVFmBbv1yU/8UQBB4+/35s8+GHH7ntWlJLJKgL5l+9Uz2gqJWAzeqleNqZ3hxdw8zzQG2ip1nQVQVhmTONKyrWkfDpHlbi03Q8sWKaJuSy+o+/9EoPpAjgi0agXfkW+ghnk2AE0/PXuSf5ojyl8Ey0DsebwQmWrM+49Tju1ytxFvYhmcb1yLyVkX6IPTqmXmLtEVRLepcIFHT4513fZBfwLvXRrHRlvAjhrEyE7SeJTpPzlejtzTUlNMzu75iG3NzqC6nowHMqQGUybW+QoSFW1ioNzjd3DXpZMAIPVZ7+K6XypewMUl/8/40VzE7CjVTP1x7cWmTBGHDgOGdy9w8sW7COrQ9zNPVwhNv/Xam0aAILrx5ymHERr+ug7oeLzq5MLZNyzc5EuS1QRRDKpc6y4nV6JN1U3ueFAimIu7WtOk7Kb0b6y6ZSMVbMb0="
